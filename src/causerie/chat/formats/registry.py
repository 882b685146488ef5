"""All formats, and which of them a template is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from causerie.chat.formats import channels, hermes, others
from causerie.chat.formats.format import CallSection, Literal, ModelFormat, Name, ParameterList

# Models leave out the first marker of a section of calls at times. Then only a marker of the first
# call, or an offered function's name with a marker behind it, tells the section from text.


def with_headless(form: ModelFormat) -> ModelFormat:
    """Return the format, which also reads its section of calls without the first markers."""
    calls, found = form.calls, list[CallSection]()
    first, second = calls.call[:2]
    if form.header is not None or calls.at_start or not isinstance(first, Literal):
        return form
    if calls.begin.strip() and first.text[:1] in ("<", "]"):
        found.append(_beginning(calls, first.text.rstrip()))
    between_markers = first.text[0] in "<[" and first.text[-1] in ">]"
    if between_markers and isinstance(second, Name) and _begins_with_marker(calls.call[2:]):
        found.append(_beginning(replace(calls, call=calls.call[1:])))
    return replace(form, calls=replace(calls, also=(*calls.also, *found))) if found else form


def _begins_with_marker(segments: Sequence[object]) -> bool:
    first, *others = segments
    if isinstance(first, ParameterList):
        return True
    if not isinstance(first, Literal):
        return False
    return first.text[0] in "<[" if first.text.strip() else _begins_with_marker(others)


def _beginning(way: CallSection, *marks: str) -> CallSection:
    return replace(way, begin="", optional_end=True, triggers=marks, lead_ins=(), lead="", also=())


# Name, format and signs of each family: a template that contains all of its signs is of the family.
# The order matters: a family stands before those whose signs its templates have as well.

_FAMILIES: Sequence[tuple[str, ModelFormat, *tuple[str, ...]]] = (
    ("beam", channels.BEAM, "<|channel|>", "<rfl:parameter"),
    ("llm-jp", channels.LLM_JP, "chat_format=llm-jp-harmony"),
    ("gpt-oss", channels.GPT_OSS, "<|channel|>analysis", "<|start|>assistant"),
    ("kimi-k3", others.KIMI_K3, "<|open|>", "<|end_of_msg|>"),
    ("kimi-k2.5", others.KIMI_K2_5, "<|tool_calls_section_begin|>", "<think>", "thinking is"),
    ("kimi-k2-thinking", others.KIMI_K2_THINKING, "<|tool_calls_section_begin|>", "<think>"),
    ("kimi-k2", others.KIMI_K2, "<|tool_calls_section_begin|>"),
    ("step-3", others.STEP_3, "<steptml:invoke"),
    ("deepseek-v4.1", others.DEEPSEEK_V4_1, "｜DSML｜", " calls>"),
    ("deepseek-v3.2", others.DEEPSEEK_V3_2, "｜DSML｜", "function_calls>"),
    ("deepseek-v4", others.DEEPSEEK_V4, "｜DSML｜"),
    ("deepseek-r1-switched", others.DEEPSEEK_R1_SWITCHED, "<｜tool▁calls▁begin｜>", "```json",
     "<think>", "enable_thinking"),
    ("deepseek-r1", others.DEEPSEEK_R1, "<｜tool▁calls▁begin｜>", "```json", "<think>"),
    ("deepseek-v3", others.DEEPSEEK_V3, "<｜tool▁calls▁begin｜>", "```json"),
    ("deepseek-v3.1", others.DEEPSEEK_V3_1, "<｜tool▁calls▁begin｜>"),
    ("minimax-m3", others.MINIMAX_M3, "]<]minimax[>[", "<mm:think>"),
    ("minimax-m2", others.MINIMAX_M2, "<minimax:tool_call>"),
    ("minimax-m1", others.MINIMAX_M1, "<tool_calls>", "<beginning_of_sentence>"),
    ("gemma-4", hermes.GEMMA_4, "<|channel>", "<|tool_call>"),
    ("function-gemma", hermes.FUNCTION_GEMMA, "<start_function_call>"),
    ("gemma-3", hermes.GENERIC, "<start_of_turn>"),
    ("command-a", hermes.COMMAND_A, "<|START_ACTION|>", "<|START_TEXT|>"),
    ("command-r7b", hermes.COMMAND_R7B, "<|START_ACTION|>"),
    ("command-r", hermes.COMMAND_R, "<|START_OF_TURN_TOKEN|>"),
    ("mistral-small-3.2", hermes.MISTRAL_SMALL_3_2, "[TOOL_CALLS]", "[CALL_ID]"),
    ("magistral", hermes.MAGISTRAL, "[TOOL_CALLS]", "[ARGS]", "[THINK]"),
    ("mistral", hermes.MISTRAL, "[TOOL_CALLS]", "[ARGS]"),
    ("mistral-nemo", hermes.MISTRAL_NEMO, "[TOOL_CALLS]"),
    ("hunyuan-4", others.HUNYUAN_4, ":6124c78e"),
    ("hunyuan-3", others.HUNYUAN_3, "<｜hy_", ":opensource"),
    ("hunyuan-a13b", others.HUNYUAN_A13B, "<|extra_0|>", "<answer>"),
    ("muse", channels.MUSE, "<atem:function_calls>"),
    ("inkling", channels.INKLING, "<|content_invoke_tool_json|>"),
    ("plamo-3", others.PLAMO_3, "plamo:begin_tool"),
    ("plamo-3", others.PLAMO_3, "plamo:begin_", "tool_requests"),
    ("seed-oss", others.SEED_OSS, "<seed:tool_call>"),
    ("apertus", others.APERTUS, "<|tools_prefix|>"),
    ("apriel", others.APRIEL, "[BEGIN FINAL RESPONSE]"),
    ("solar-open-2", others.SOLAR_OPEN_2, "<|tool_call:start|>", "<|tool_arg:value|>"),
    ("solar-open", others.SOLAR_OPEN, "<|tool_call:begin|>", "<|calls|>"),
    ("gigachat-3.5", others.GIGACHAT_3_5, "｜GCML｜"),
    ("gigachat-3.1", others.GIGACHAT_3_1, "<|role_sep|>", "<|function_call|>"),
    ("gigachat-3", others.GIGACHAT_3, "<|role_sep|>", "function call"),
    ("minicpm-5", others.MINICPM_5, '<function name="', "<param name="),
    ("k2-horizon", others.K2_HORIZON, "<ifm|tool_calls>"),
    ("dots", others.DOTS, "<dots_function_call>"),
    ("jamba", others.JAMBA, "<|bom|>", "<tool_calls>"),
    ("xlam-2", others.XLAM_2, "make calls in a single JSON array"),
    ("phi-4-reasoning", others.PHI_4_REASONING, "<|im_sep|>", "<think>"),
    ("phi-4-mini", others.PHI_4_MINI, "<|tool|>", "<|assistant|>"),
    ("ernie-4.5", hermes.ERNIE_4_5, "<global_setting>", "<response>"),
    ("granite-20b", hermes.GRANITE_20B, "<function_call>", "<|function_call_library|>"),
    ("granite-4", hermes.HERMES, "<|start_of_role|>", "<tool_call>"),
    ("granite-3.3", hermes.GRANITE_3_3, "<|start_of_role|>", "<response>"),
    ("granite-3", hermes.GRANITE_3, "<|start_of_role|>"),
    ("longcat-2", others.LONGCAT_2, "<longcat_tool_call>", "<longcat_arg_key>"),
    ("longcat-flash", others.LONGCAT_FLASH, "<longcat_tool_call>"),
    ("internlm-2", others.INTERNLM_2, "<|plugin|>"),
    ("nemotron-nano-2", hermes.NEMOTRON_NANO_2, "<TOOLCALL>"),
    ("lfm-2.5", others.LFM_2, "List of tools: ", "<|im_start|>", "<|tool_call_start|>"),
    ("lfm-2", others.LFM_2, "List of tools: ", "<|im_start|>"),
    ("olmo-3-think", others.OLMO_3_THINK, "<function_calls>", "<functions>", "<think>"),
    ("olmo-3", others.OLMO_3, "<function_calls>", "<functions>"),
    ("iquest-q1", others.IQUEST_Q1, "<iquest_tool_call>"),
    ("ling-3", others.LING_3, "<arg_key>", "<role>ASSISTANT</role>"),
    ("spark-2.5", others.GLM_4_7, "<arg_key>", "<|Bot|>"),
    ("laguna-s", others.GLM_4_7, "<arg_key>", "<available_tools>",
     "enable_thinking | default(true)"),
    ("laguna", others.LAGUNA, "<arg_key>", "<available_tools>"),
    ("glm-4.7", others.GLM_4_7, "<arg_key>", "[gMASK]", "</arg_key><arg_value>"),
    ("glm-4.5", others.GLM_4_5, "<arg_key>", "[gMASK]"),
    ("nemotron-3", others.NEMOTRON_3, "<function=", "<parameter=", "truncate_history_thinking"),
    ("step-3.5", others.STEP_3_5, "<function=", "<parameter=", "<im_patch>"),
    ("qwen-3.5", others.QWEN_3_5, "<function=", "<parameter=", "</think>"),
    ("qwen-3-coder", others.QWEN_3_CODER, "<function=", "<parameter="),
    ("firefunction-2", hermes.FIREFUNCTION_2, "functools["),
    ("functionary-3.2", hermes.FUNCTIONARY_3_2, ">>>${recipient}"),
    ("functionary-3.1", hermes.FUNCTIONARY_3_1, "<function=", "<|start_header_id|>"),
    ("toolace", hermes.TOOL_ACE, "[func_name1(params_name1=params_value1"),
    ("llama-4", hermes.LLAMA_4, "<|header_start|>", '"parameters": '),
    ("llama-4-pythonic", hermes.LLAMA_4_PYTHONIC, "<|header_start|>"),
    ("llama-3", hermes.LLAMA_3, "<|start_header_id|>", "<|python_tag|>"),
    ("llama-3", hermes.LLAMA_3, "<|start_header_id|>", '"parameters": '),
    ("smollm-3", hermes.SMOLLM_3, "Reasoning Mode: ", "/no_think"),
    ("bielik", hermes.BIELIK, "<tool_call>", "<|function_output|>"),
    ("reka", hermes.REKA, "<tool_call>", "<REKA_IMG_TOKEN>"),
    ("mimo", hermes.HERMES, "<tool_call>", "MiMo"),
    ("qwen-3", hermes.QWEN_3, "<tool_call>", "reasoning_content", "enable_thinking"),
    ("qwen-3-thinking", hermes.QWEN_3_THINKING, "<tool_call>", "reasoning_content",
     "assistant\\n<think>\\n' }}"),
    ("qwen-3-instruct", hermes.HERMES, "<tool_call>", "reasoning_content"),
    ("qwq-switched", hermes.QWQ_SWITCHED, "<tool_call>", "</think>", "enable_thinking"),
    ("qwq", hermes.QWEN_3_THINKING, "<tool_call>", "</think>"),
    ("hermes", hermes.HERMES, "<tool_call>"),
    ("generic-thinking", hermes.GENERIC_THINKING, "enable_thinking", "<think>"),
    ("generic", hermes.GENERIC),
)  # fmt: skip
_BY_NAME = {name: with_headless(replace(form, name=name)) for name, form, *_ in _FAMILIES}
FORMATS = tuple(_BY_NAME.values())


def detect(template: str) -> ModelFormat:
    """Return the format that a chat template belongs to; the fallback if none matches."""
    return next(
        _BY_NAME[name] for name, _, *signs in _FAMILIES if all(sign in template for sign in signs)
    )


def by_name(name: str) -> ModelFormat:
    """Return the format of that name; raise :class:`ValueError` that lists the names."""
    if name not in _BY_NAME:
        raise ValueError(f"There is no format {name!r}; these are: {', '.join(_BY_NAME)}.")
    return _BY_NAME[name]
