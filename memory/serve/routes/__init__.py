"""Routes: the handlers of the service, by subject."""
