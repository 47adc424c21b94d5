"""What fits a GPU: peak memory, FLOPs and a time bound of every stage, traced on a CPU without a number computed."""
