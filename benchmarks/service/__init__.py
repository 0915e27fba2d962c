"""The store as a service, on servers and on several machines."""
