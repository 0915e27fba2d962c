"""Train and judge a detector for sensors that it has not seen."""
