"""Texts on their way in: readers, the tokenizer, the encoded corpus, batches."""
