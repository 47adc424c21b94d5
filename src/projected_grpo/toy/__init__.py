"""The toy world: small programming tasks and a model small enough that reward hacking emerges on two CPU cores.

tasks.py  what is asked (torch-free)      programs.py  what may be answered: correct, bugged, hacked (torch-free)
corpus.py pre-training text, pairs, problems (torch-free)      tokenizer.py      pretrain.py  base model and teacher
"""
