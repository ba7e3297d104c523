"""Loads what counts tokens (0.3 s), for the processes that are forked from one that has imported this."""

from palimpsest.tokenizer.text import encoding_of

encoding_of("o200k_base")
