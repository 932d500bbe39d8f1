"""Chats as prompts: the model's own template, and content that cannot forge control tokens."""

from runtime_py.chat.messages import check_messages, guarded
from runtime_py.chat.template import ChatTemplate

__all__ = ["ChatTemplate", "check_messages", "guarded"]
