"""A run, a view of runs or a sweep as one HTML file that opens without a network.

It reads the store and the catalog, and packs what it read with the page's own modules. It must not know
requests, tokens or the server's state: a command builds the same file.
"""
