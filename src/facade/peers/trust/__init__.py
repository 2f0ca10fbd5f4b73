"""Who belongs to a federation: keys, the signed list of members, a site's directory."""
