"""The simulator: a virtual clock drives the production batching core, and models of others."""
