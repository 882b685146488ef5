"""Notices on a page after an action; the address only names the notice."""

from __future__ import annotations

from types import MappingProxyType

NOTICES = MappingProxyType(
    {
        "key-saved": "The key was changed.",
        "key-disabled": "The key was disabled; it stops within a second.",
        "key-enabled": "The key works again.",
        "key-deleted": "The key was deleted.",
        "key-transferred": "The key was transferred.",
        "name-saved": "The name was changed.",
        "password-saved": "The password was changed; all other sessions have ended.",
        "account-ready": "Sign in with the password that you chose. If the address had an account "
        "before, that and its password are unchanged: sign in, and open the link again.",
        "password-reset": "The password was changed. Sign in with it.",
        "identity-linked": "You can sign in with it from now on.",
        "identity-unlinked": "You can no longer sign in with it.",
        "factor-removed": "Two-factor authentication was removed.",
        "session-ended": "The session has ended.",
        "sessions-ended": "All other sessions have ended.",
        "nothing-changed": "Your session has ended, so nothing was changed.",
        "signed-out": "You have signed out.",
        "joined": "You are a member of the project now.",
        "project-renamed": "The project was renamed.",
        "project-archived": "The project was archived; its keys no longer work.",
        "project-restored": "The project was restored; its keys work again.",
        "bounds-saved": "Limits and budgets were changed.",
        "recording-on": "Request logging is on.",
        "recording-off": "Request logging is off; all logged prompts and replies were deleted.",
        "invitation-withdrawn": "The invitation was withdrawn.",
        "member-changed": "The role was changed; their keys do what it allows.",
        "member-removed": "The member was removed.",
        "left": "You have left the project.",
        "user-disabled": "The user was disabled; their sessions have ended and their keys stop.",
        "user-enabled": "The user may sign in again; their keys work again.",
        "users-factor-removed": "Two-factor authentication was removed; their sessions have ended.",
        "operator-made": "The user is an operator now.",
        "operator-unmade": "The user is no longer an operator.",
        "probe-cancelled": "The probe was cancelled.",
        "probe-used": "The result was written to the configuration and is in force.",
        "project-made": "The project was created.",
        "provider-added": "The provider was added. Now choose its models.",
        "provider-saved": "The provider was changed; it is in force.",
        "provider-enabled": "The provider is on again.",
        "provider-disabled": "The provider is off; it is asked no more.",
        "provider-deleted": "The provider was deleted, and its key forgotten.",
        "models-taken": "The models that were picked are in force.",
        "alias-added": "The alias was created; requests may name it.",
        "alias-saved": "The alias was changed; it is in force.",
        "alias-enabled": "The alias is on again.",
        "alias-disabled": "The alias is off; requests for it are refused.",
        "alias-deleted": "The alias was deleted.",
    }
)
