"""Average precision of 3D boxes on any labelled data."""
