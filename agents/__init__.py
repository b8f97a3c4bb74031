"""How one episode is played: one async function per agent."""
