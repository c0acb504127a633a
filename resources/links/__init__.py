"""View-only links: made, listed, revoked, and found by the secret in their address.

It knows what a link shows and until when, and that it ends with the token that made it. It must not know HTTP
or how a page is built.
"""
