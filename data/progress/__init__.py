"""What an answer has said so far, as counts at a few lengths: from token ids alone, so that no text is kept."""
