"""Whether studies bear out what papers, or others, claim."""
