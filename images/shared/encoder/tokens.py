"""Text to token ids, by the ``tokenizers`` library alone: ``transformers`` is needed only to read older formats.

A tokeniser is saved into the prepared folder as ``transformers`` would apply it, so that both give the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from tokenizers import Tokenizer

from encoder.errors import BadCheckpoint, reading

# A text, or a title and a text that the tokeniser joins as it joins pairs.
Text = str | tuple[str, str]

# What each family of tokenisers puts around a text, and fills batches up with: first, last, padding.
# BigBird has both; Llama's tokenisers put nothing behind a text and have no token of padding.
_FAMILIES = (("[CLS]", "[SEP]", "[PAD]"), ("[CLS]", "[SEP]", "<pad>"), ("<s>", "</s>", "<pad>"), ("<s>", "", "<unk>"))


@dataclass(frozen=True)
class Batch:
    """Texts as the transformer reads them: int64 arrays of shape (texts, longest of them in tokens)."""

    ids: Any
    mask: Any
    types: Any

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class PairForm:
    """Special tokens around two texts (``[CLS]`` | ``[SEP]`` | ``[SEP]``), and the token types of their sides."""

    before: list[int]
    between: list[int]
    after: list[int]
    first_type: int = 0
    second_type: int = 1

    @property
    def added(self) -> int:
        """The number of special tokens."""
        return len(self.before) + len(self.between) + len(self.after)


class Tokens:
    """A checked tokeniser without padding or truncation of its own.

    Args:
        tokenizer: of the ``tokenizers`` library; it is changed.
        vocabulary: rows of the transformer's embedding; a token id beyond them would read what is not there.
        segments: whether the second text of a pair has token type 1; else all types are ``segment``.
        segment: token type of a text.
        name: folder of the checkpoint, for messages.

    Raises:
        BadCheckpoint: a special token is missing, or token ids go beyond the vocabulary.
    """

    def __init__(
        self, tokenizer: Tokenizer, vocabulary: int, *, segments: bool = False, segment: int = 0, name: str = ""
    ) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.tokenizer = tokenizer
        self._segments = segments
        self._segment = segment
        self._limit: int | None = None
        self.pad_id = _checked(tokenizer, vocabulary, name)

    def encode(self, texts: Sequence[Text], max_tokens: int) -> list[Any]:
        """Encode each text, unpadded, cut to ``max_tokens`` (special tokens included)."""
        if self._limit != max_tokens:
            self.tokenizer.enable_truncation(max_tokens)
            self._limit = max_tokens
        return self._encode(texts, special=True)

    def ids(self, text: str) -> list[int]:
        """Return a text's token ids, uncut and without special tokens."""
        if self._limit is not None:
            self.tokenizer.no_truncation()
            self._limit = None
        return list(self._encode([text], special=False)[0].ids)

    def many_ids(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Return the token ids of each text, cut to ``max_tokens``, without special tokens."""
        if self._limit != max_tokens:
            self.tokenizer.enable_truncation(max_tokens)
            self._limit = max_tokens
        return [encoding.ids for encoding in self._encode(texts, special=False)]

    def pair_form(self) -> PairForm:
        """Return the special tokens and token types that this tokeniser gives a pair of texts."""
        self.tokenizer.no_truncation()
        self._limit = None
        whole = self.tokenizer.encode("a", "a")
        # None for a special token, else the number of the text.
        parts = whole.sequence_ids
        first, second = parts.index(0), parts.index(1)
        after_first = len(parts) - parts[::-1].index(0)
        after_second = len(parts) - parts[::-1].index(1)
        ids, types = whole.ids, whole.type_ids
        return PairForm(
            ids[:first], ids[after_first:second], ids[after_second:], types[first] if first else 0, types[second]
        )

    def _encode(self, texts: Sequence[Text], *, special: bool) -> list[Any]:
        try:
            return self._encoded(texts, special)
        except (UnicodeEncodeError, TypeError):
            # Half a surrogate pair is no text: it is replaced, as a decoder would have done.
            return self._encoded([_whole(text) for text in texts], special)

    def _encoded(self, texts: Sequence[Text], special: bool) -> list[Any]:
        if len(texts) > 1:
            return list(self.tokenizer.encode_batch(list(texts), add_special_tokens=special))
        # A batch goes to the library's thread pool, and one text would wait for a switch there and back.
        pairs = (text if isinstance(text, tuple) else (text, None) for text in texts)
        return [self.tokenizer.encode(*pair, add_special_tokens=special) for pair in pairs]

    def batch(self, encodings: Sequence[Any]) -> Batch:
        """Fill encodings up to the longest of them."""
        rows = [encoding.ids for encoding in encodings]  # each call makes a list
        width = max(map(len, rows))
        ids = numpy.array([row + [self.pad_id] * (width - len(row)) for row in rows], dtype=numpy.int64)
        mask = numpy.array([[1] * len(row) + [0] * (width - len(row)) for row in rows], dtype=numpy.int64)
        types = numpy.full(ids.shape, self._segment, dtype=numpy.int64)
        if self._segments:
            for row, encoding in enumerate(encodings):
                types[row, : len(rows[row])] = encoding.type_ids
        return Batch(ids, mask, types)


# The special tokens of BERT, by their name in tokenizer_config.json.
_BERT = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def read(folder: Path) -> Tokenizer:
    """Read a checkpoint's tokeniser; ``transformers`` reads the older formats.

    Raises:
        BadCheckpoint: there is none, or it cannot be read.
    """
    if (folder / "encoder.json").is_file():
        return _plain(folder)
    _check_files(folder)
    if (pieces := _word_pieces(folder)) is not None:
        return pieces
    from transformers import AutoTokenizer

    with reading(f"{folder.name}: the tokeniser cannot be read"):
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is None:
        raise BadCheckpoint(f"{folder.name}: {type(tokenizer).__name__} has no form that the tokenizers library reads")
    return Tokenizer.from_str(fast.to_str())


def _word_pieces(folder: Path) -> Tokenizer | None:
    """Return BERT's tokeniser if ``tokenizer.json`` holds just what ``transformers`` makes of the other files."""
    told: dict[str, Any] = {}
    try:
        held = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            told |= json.loads((folder / name).read_text(encoding="utf-8"))
        vocabulary = held["model"].pop("vocab")
        specials = {token: vocabulary[token] for token in _BERT.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # transformers reads it, or says what is wrong
    marks = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    first, second = ({"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB"))
    begin, end, last = (
        {"SpecialToken": {"id": token, "type_id": number}}
        for token, number in ((_BERT["cls_token"], 0), (_BERT["sep_token"], 0), (_BERT["sep_token"], 1))
    )
    made = {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": token, **marks}
            for token, number in sorted(specials.items(), key=lambda it: it[1])
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": told.get("tokenize_chinese_chars", True),
            "strip_accents": told.get("strip_accents"),
            "lowercase": told.get("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, first, end],
            "pair": [begin, first, end, second, last],
            "special_tokens": {
                token: {"id": token, "ids": [specials[token]], "tokens": [token]}
                for token in (_BERT["cls_token"], _BERT["sep_token"])
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": _BERT["unk_token"],
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        },
    }
    usual = told.get("tokenizer_class") in ("BertTokenizer", "BertTokenizerFast")
    named = all(told.get(name, token) == token for name, token in _BERT.items())
    further = any(told.get(name) for name in ("additional_special_tokens", "added_tokens_decoder", "never_split"))
    same = {name: value for name, value in held.items() if name not in ("truncation", "padding")} == made
    return _plain(folder) if usual and named and same and not further else None


def _plain(folder: Path) -> Tokenizer:
    with reading(f"{folder.name}: tokenizer.json cannot be read"):
        return Tokenizer.from_file(str(folder / "tokenizer.json"))


def _check_files(folder: Path) -> None:
    """Refuse files without the special tokens: ``transformers`` would add them silently, with untrained vectors."""
    vocabulary = folder / "vocab.txt"
    if (folder / "tokenizer.json").is_file():
        known = set(_plain(folder).get_vocab(with_added_tokens=True))
    elif vocabulary.is_file():
        known = set(vocabulary.read_text(encoding="utf-8").splitlines())
    elif (folder / "vocab.json").is_file():
        known = set(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    elif any(folder.glob("*.model")):
        return  # SentencePiece: what comes of it is checked afterwards
    else:
        raise BadCheckpoint(f"{folder.name}: no tokeniser (tokenizer.json, vocab.txt, vocab.json or *.model)")
    if not any(known.issuperset(filter(None, family)) for family in _FAMILIES):
        lacking = sorted(set(_FAMILIES[0]) - known)
        raise BadCheckpoint(f"{folder.name}: the tokeniser lacks the special tokens {', '.join(lacking)}")


def _checked(tokenizer: Tokenizer, vocabulary: int, name: str) -> int:
    """Return the padding token's id."""
    ids = {token: tokenizer.token_to_id(token) for family in _FAMILIES for token in family}
    family = next((each for each in _FAMILIES if all(ids[token] is not None for token in each if token)), None)
    if family is None:
        lacking = [token for token in _FAMILIES[0] if ids[token] is None]
        raise BadCheckpoint(f"{name}: the tokeniser lacks the special tokens {', '.join(lacking)}")
    first, last, padding = family
    around = tokenizer.encode("").ids
    if around != [ids[token] for token in (first, last) if token]:
        raise BadCheckpoint(
            f"{name}: the tokeniser must put {first} before a text and {last or 'nothing'} behind it, and does not"
        )
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values())
    if highest >= vocabulary:
        raise BadCheckpoint(
            f"{name}: the tokeniser has token id {highest}, the transformer's vocabulary ends at {vocabulary - 1}; "
            "they do not belong together"
        )
    return int(ids[padding])


def _whole(text: Text) -> Text:
    if isinstance(text, tuple):
        return (str(_whole(text[0])), str(_whole(text[1])))
    return text.encode("utf-8", "replace").decode("utf-8")
