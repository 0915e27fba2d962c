"""Shapes of requests and answers, and the OpenAPI document made of them."""
