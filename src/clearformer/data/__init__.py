"""Data on its way in: readers of pairs, trees, images; the encoded corpus, batches."""
