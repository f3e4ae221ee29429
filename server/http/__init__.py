"""What is answered on the one port: webhooks, the scheduler's paths, probes, metrics, and to whom.

Knows the decisions of `admission` and `scheduler`, and no controller; `http_edge` carries requests and answers.
"""
