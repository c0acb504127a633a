"""Tools by which agents read and steer, over MCP: what each is asked, and its answer as text within a budget.

It must not know HTTP, tokens and commands: whoever calls it says who asks and what they may. Only
``mcp_server`` knows MCP's SDK.
"""
