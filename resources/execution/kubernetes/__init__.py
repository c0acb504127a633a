"""Trials on a Kubernetes cluster: its settings, the pods that trials run in, and what became of them."""
