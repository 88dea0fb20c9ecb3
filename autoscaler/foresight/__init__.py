"""What a policy needs to look ahead: demand, capacity, backlog, lead time. Pure, no clock."""
