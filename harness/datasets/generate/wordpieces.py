"""Tokens of bert-base-uncased: the unit in which documents are long and passages have a place.

``bert-base-uncased-vocab.txt.gz`` is the vocabulary of Devlin et al. 2019 (google-research/bert), Apache License 2.0,
unchanged but compressed.  The tokenizer ends every token at white space, so counts of texts joined by blanks add up.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import extras

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NAME = "bert-base-uncased"
# As published: huggingface.co/google-bert/bert-base-uncased, vocab.txt at 86b5e0934494.
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_VOCABULARY = Path(__file__).with_name("bert-base-uncased-vocab.txt.gz")
_LONGEST_WORD = 100  # characters; BERT takes longer ones for one unknown token
_BATCH = 512


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text, without [CLS] and [SEP]."""
    counts: list[int] = []
    for start in range(0, len(texts), _BATCH):
        batch = list(texts[start : start + _BATCH])
        counts += map(len, _tokenizer().encode_batch_fast(batch, add_special_tokens=False))
    return counts


def split_tokens(texts: Sequence[str]) -> Iterator[tuple[list[str], list[tuple[int, int]]]]:
    """Yield the tokens of each text, and the characters (start, end) of each token in it."""
    for start in range(0, len(texts), _BATCH):
        for encoding in _tokenizer().encode_batch(list(texts[start : start + _BATCH]), add_special_tokens=False):
            yield encoding.tokens, encoding.offsets


@functools.lru_cache(maxsize=1 << 16)
def word_tokens(word: str) -> int:
    """Return the number of tokens of one word."""
    return len(_tokenizer().encode(word, add_special_tokens=False))


def cut_at_word(text: str, most_tokens: int) -> str:
    """Return the longest beginning of whole words with at most ``most_tokens`` tokens."""
    if len(text) <= most_tokens:  # a token has a character at least
        return text
    offsets = _tokenizer().encode(text, add_special_tokens=False).offsets
    if len(offsets) <= most_tokens:
        return text
    end = offsets[most_tokens][0]
    while end and not text[end - 1].isspace():  # the word that the first token too many belongs to goes too
        end -= 1
    return text[:end].rstrip()


def cut_at_token(text: str, most_tokens: int) -> tuple[str, int]:
    """Return the longest beginning with at most ``most_tokens`` tokens that splits no word's pieces, and its tokens."""
    ((tokens, offsets),) = split_tokens([text])
    count = min(most_tokens, len(tokens))
    while 0 < count < len(tokens) and tokens[count].startswith("##"):
        count -= 1
    return (text[: offsets[count - 1][1]], count) if count else ("", 0)


@functools.cache
def vocabulary() -> tuple[str, ...]:
    """Return all tokens by their numbers."""
    content = gzip.decompress(_VOCABULARY.read_bytes())
    assert hashlib.sha256(content).hexdigest() == VOCABULARY_SHA256, "the shipped vocabulary was changed"
    return tuple(content.decode("utf-8").rstrip("\n").split("\n"))


@functools.cache
def _tokenizer() -> Tokenizer:
    extras.require("tokenizers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    numbers = {token: number for number, token in enumerate(vocabulary())}
    model = WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=_LONGEST_WORD)  # noqa: S106 # no password
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer
