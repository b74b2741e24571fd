"""LLM rerankers: prompts, windows, answers, and the model or the recording behind them."""
