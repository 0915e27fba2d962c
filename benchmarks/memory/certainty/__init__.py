"""How certain a memory is: relocalization, and answers with a guaranteed error."""
