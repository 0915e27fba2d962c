"""The documentation as a site: Markdown and docstrings in, pages that work without a network out."""
