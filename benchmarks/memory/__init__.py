"""The store: searches, indexes, drives, retention and encoders."""
