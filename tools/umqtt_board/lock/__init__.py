"""Keys of this computer at rest: locked with a passphrase, copied to another computer, revoked."""
