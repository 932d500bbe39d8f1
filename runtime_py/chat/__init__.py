"""Chats as prompts: the model's own template, and content that cannot forge control tokens."""

from runtime_py.chat.messages import check_messages, check_template_options, guarded
from runtime_py.chat.template import ChatRenderer, ChatTemplate

__all__ = ["ChatRenderer", "ChatTemplate", "check_messages", "check_template_options", "guarded"]
