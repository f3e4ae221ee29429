"""What people and machines read: metrics, event and refusal reasons, conditions, logs.

Each is declared once, here. Nothing here decides anything.
"""
