"""Average precision of 3-D boxes on any labelled data."""
