"""The life of a transaction on the driver: locks, heartbeat, snapshots, manifests, commit."""
