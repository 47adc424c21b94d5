"""tiny, toy and small: tasks, tokenizer, base model and teacher of each world; the pairs that ship with the
package."""
