"""What a person asks of a model: raw text in, typed results out."""
