"""Who is who at the broker: certificates for the fleet, and access lists."""
