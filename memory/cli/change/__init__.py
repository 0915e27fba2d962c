"""Commands that change memories."""
