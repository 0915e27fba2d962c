"""What is trained: the network, its layers, its weights and what makes them smaller."""
