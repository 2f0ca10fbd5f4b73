"""The round loop and what passes between nodes; nothing here touches a disk or a network."""
