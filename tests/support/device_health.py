"""Health states of devices, as the agent's tracker makes them."""

from agent.health.states import state_after, xid_reason
from inventory.health.recovery import action_of_xid

XID_79 = state_after(xid_reason(79), action_of_xid(79))
