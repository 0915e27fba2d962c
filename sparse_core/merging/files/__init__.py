"""Models and task vectors on disk, read and written tensor by tensor."""
