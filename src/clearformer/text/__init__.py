"""Text ↔ token ids: tokenizers, learned here or public, special tokens, chat templates, detokenising."""
