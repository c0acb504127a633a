"""What a view-only link opens: one page, and nothing else.

It knows links and how their pages are built. It must not know tokens' scopes, sessions or a route of the API:
a link is no credential of anything but its page.
"""
