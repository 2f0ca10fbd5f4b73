"""What a site of a permissioned network needs besides the round loop: identity, membership, headers,
waiting, and the records of who took part."""
