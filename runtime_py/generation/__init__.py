"""Text generation above the engine: options, streaming text, results."""
