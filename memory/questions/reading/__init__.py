"""Reading of questions: words to a structured question, without a store."""
