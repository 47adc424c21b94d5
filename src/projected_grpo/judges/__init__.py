"""A judge: something that reads the prompt and the completion of each rollout, and says how much it looks like a hack.

`train --judge` names one; its scores are the column `judge` of the step file, and the monitors `penalty_judge` and
`screen_judge` flag by them. It is given two texts a rollout and nothing else: no label, no reward, no id.

    model:NAME              a Hugging Face model asked a yes/no question (yes_no.py); NAME as for --model
    python:MODULE:FUNCTION  FUNCTION(prompt, completion) -> score, called once a rollout (outside.py)
    command:WORDS           a program: one JSON object {"prompt", "completion"} a line in, one score a line out (outside.py)

A score is a number in [0, 1]. Anything else, and a judge that fails, ends the run with one line (JudgeFailed, exit code 1):
a score is never made up. The step is then not written, and --resume goes on from the one before.
"""
