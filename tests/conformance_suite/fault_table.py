"""The faults that the suite is tried with: in a quick run exactly the named blocks see each."""

from .faults import at, of, read, stored, written

KL, L1 = "KlDivBackward", "L1LossBackward"
LOCAL = "npucall_client.local.transport"
NUMBERS = "grid layout rank edge size"
STANDARD = "cann-standard"

OPERATORS = (
    of(KL, "broadcast documents",
       'kl_factor(facts, reduction, "common")', 'kl_factor(facts, reduction, "self")'),
    of(KL, f"{NUMBERS} defaults broadcast mixed reduction invalid determinism documents",
       "-kl_factor", "kl_factor"),
    of(KL, "edge", "np.exp(target)", "np.exp(np.minimum(target, 88))"),
    of(KL, "reduction", "facts, reduction,", "facts, reduction & 0xFFFFFFFF,"),
    of(KL, f"{NUMBERS} defaults broadcast mixed empty reduction determinism",
       "float16_if_all", "short_if_all"),
    of(L1, "edge documents", "np.subtract(self > target, self < target, dtype=np.float32)",
       "np.sign(np.subtract(self, target))"),
    of("KlDivTargetBackward.builtin", "edge documents", "gradient * target / target", "gradient"),
    at(".operators._kl_div_target", "KlDivTargetBackward.community", "edge documents",
       "gradient.dtype.type(0), gradient", "gradient, gradient"),
    of("Softmax", "edge", "np.subtract(self, facts.row_max(np.asarray(self)))", "np.array(self)"),
    of("LogSoftmax", "mixed documents",
       "kernel_dtype=dtype_of_out", 'kernel_dtype=rules.dtype_of("self")'),
    of("GeluV2", "reduction documents", "approximate == TANH", "approximate"),
    of("Sigmoid", "mixed", "kernel_dtype=_kernel_dtype", 'kernel_dtype=rules.dtype_of("result")'),
    of("Threshold", "mixed", '"what replaces them", dtype="self"', '"what replaces them"'),
    of("Elu", "edge documents", "if isfinite(alpha * input_scale):", "if alpha:"),
    of("Exp", f"{NUMBERS} mixed written invalid determinism",
       "np.exp(self, out=facts.out)", "np.exp(self) * facts.dtype.type(1.00001)"),
    of("Tanh", "edge size", "np.tanh(self, out=facts.out)", "1 - 2 / (np.exp(2 * self) + 1)"),
    of("Hardtanh", "edge", "np.clip(self, clip_value_min, clip_value_max, out=facts.out)",
       "np.fmin(np.fmax(self, clip_value_min), clip_value_max).astype(facts.dtype)"),
    of("TanhBackward", "written",
       "np.subtract(1, output) * np.add(1, output)", "1 - output * output"),
    of("SiluBackward", "edge", "np.asarray(self, np.float64)", "np.asarray(self)"),
    of("KlDiv", "edge documents", "np.where(np.equal(target, 0), 1, target)", "target"),
    of("LogitGrad", "edge", "facts.dtype.type(np.float32(eps))", "np.float64(eps)"),
    of("SoftMarginLoss", "edge documents",
       "np.add(np.maximum(margin, 0), rest, out=facts.out)", "np.log1p(np.exp(margin))"),
    of("BinaryCrossEntropy", "edge", "LEAST = -100.0", "LEAST = -np.inf"),
    of("Mul", "edge written", "np.multiply(self, other, out=facts.out)",
       "np.where(np.abs(p := np.multiply(self, other)) < 1e-38, 0, p).astype(p.dtype)"),
    at(".compute.operands", "Mul", "mixed",
       "block.view(np.uint8) != 0", "block.view(np.uint8) == 1"),
    of("MseLoss", "edge",
       "np.multiply(distance, distance, out=distance)", "np.square(distance, dtype=np.float64)"),
    of("Mean", "empty", "shared.filled(nan,", "shared.filled(0.0,"),
    at(".operators._reductions", "Mean", "mixed empty written size",
       "if keep or dim not in dims", "if keep or dim not in dims or len(shape) == 1"),
    at(".operators._losses", "MseLoss", "empty", "return nan if", "return 0.0 if"),
    at(".operators._nll_loss", "NLLLoss",
       "defaults broadcast mixed layout rank edge determinism size documents",
       "loss / total if", "loss / prod(labelled) if"),
    at(".operators._nll_loss", "NLLLoss", "edge", "np.asarray(facts.read(target, index), np.int64)",
       "(t := facts.read(target, index)).astype(np.int8 if t.dtype == np.uint8 else "
       "np.int64)"),
    of("CrossEntropyLoss", "defaults grid layout edge reduction size",
       "columns] = part", "columns] = np.where(counted[:, None], part, 0)"),
    of("CrossEntropyLossGrad", "reduction", '("mean", None)', '("mean",)'),
    of("CtcLoss", "defaults edge documents", "zero_infinity and facts.product is not ASCEND_950",
       "zero_infinity", soc="Ascend950PR_9599"),
    at(".operators._ctc_states", "CtcLoss",
       "defaults grid broadcast layout edge invalid determinism size documents",
       "last, onward, classes != behind", "last, onward, (classes != behind) | (numbers % 2 == 1)"),
    at(".operators._prelu", "Prelu", "written",
       "(len(shape) - 2)", "((len(shape) - 2) * (shape[-1] != shape[1]))"),
    of("PreluBackward", "large", "sums[own] +=", "sums[own] ="),
    at(".operators._rows", "RmsNormGrad", "large",
       "np.add.reduce(ones @ groups, 0, np.float64)", "np.add.reduce(block[:whole], 0)"),
    of("Matmul", "large", "np.add(total, np.matmul(first, second), out=total)",
       "np.copyto(total, np.matmul(first, second))", quick=False),
    of("Matmul", "written",
       "return FLOAT16 if lower and promotion is FLOAT else promotion", "return promotion"),
)  # fmt: skip
"""Formulas, and what operators declare."""

ROUNDING = (
    stored("Gelu", NUMBERS, "bfloat16", "(r.view(np.uint32) & 0xFFFF0000).view(np.float32)"),
    stored("Gelu", "size", "bfloat16",
           "(r.view(np.uint32) & 0xFFFF0000).view(np.float32)", profile=STANDARD, quick=False),
    stored(KL, "edge", "bfloat16",
           "(r.view(np.uint32) + ((r.view(np.uint32) & 0x1FFFF) == 0x8000)).view(np.float32)"),
    stored("Silu", NUMBERS, "bfloat16", "r.astype(np.float16).astype(np.float32)"),
    stored("MseLoss", "grid broadcast mixed layout edge size", "float16",
           "(r.view(np.uint32) & 0xFFFFE000).view(np.float32)"),
    stored("MseLossBackward", "size", "float16",
           "((r.view(np.uint32) + 0x1FFF) & 0xFFFFE000).view(np.float32)",
           profile=STANDARD, quick=False),
    at(".compute.conversions", "Cast", "edge",
       "if (source.dtype, target.dtype) in _ROUNDED_TWICE:", "if False:"),
    at(".compute.blocks", "MseLoss", "defaults broadcast mixed",
       "summed(result,", "summed(rounded(result, self.kernel),"),
)  # fmt: skip
"""How results are rounded and added up."""

PLACES = (
    read(KL, "layout", "Layout.of_spec(spec)._replace(offset=0)"),
    read(KL, "layout", "Layout.of_spec(spec.dense())._replace(offset=Layout.of_spec(spec).offset)"),
    read("Mul", "layout", "(f := Layout.of_spec(spec))._replace(offset=f.offset - f.offset % 32)"),
    read("Add", "large",
         "Layout.of_spec(spec if spec.elements < 98_305 or 0 in spec.strides else spec.dense())"),
    at(".compute.recipes", L1, "layout",
       "Layout.of_spec(spec) for name, spec in call.outputs.items()}",
       "Layout.of_spec(spec.dense())._replace(offset=Layout.of_spec(spec).offset) for name, "
       "spec in call.outputs.items()}"),
    at(".compute.recipes", L1, "layout",
       "0 if sent is None else np.frombuffer(sent, np.uint8)", "0xA5"),
    at(".compute.evaluate", "KlDivTargetBackward.builtin", "empty",
       "call.fills.get(answer.name, 0)", "call.fills.get(answer.name, 7)"),
    at(".compute.work", L1, "large",
       "return list(blocks) if len(blocks) <= _FEW else blocks", "return list(blocks)[:-1]"),
    at(".compute.blocks", KL, "large", "+= part", "= part", quick=False),
    at(".compute.blocks", KL, "broadcast documents",
       "self.kernel).sum(self._axes, self._in, keepdims=True)",
       "self.kernel).max(self._axes, keepdims=True)"),
    written("Add", "size", "a[...] = a + a if a.shape == (257,) else a"),
    at(".compute.sums", "ReduceSum", "size",
       'return sums if whole == length else sums + np.einsum("ij->i", rows[:, whole:])',
       "return sums"),
    written("Tanh", "rank", "a[...] = a + a if a.ndim == 0 else a"),
    written("Muls", "crowd", "a[...] = a + a if run == 21 else a"),
    written("Silu", "grid", "a[...] = a + a if a.ndim == 4 else a"),
    written("Softmax", "determinism",
            "a[...] = a[::-1].copy() if run > 1 and a.shape == (196_611,) else a", quick=False),
)  # fmt: skip
"""Where elements lie, what is large, what is asked again."""

CHECKS = (
    of(KL, "invalid", "rules.present(*TENSORS)", "rules.present(*reversed(TENSORS))"),
    of(KL, "rank", "rank_at_most(8,", "rank_at_most(7,"),
    of(KL, "listing empty invalid",
       'rules.same_shape("out", "self")',
       'rules.rule.refuses(__import__("npucall.errors").errors.ShapeError, "shape of out", '
       '("out",), lambda d: (("out", "that of self", s.shape) for _, s in d.tensors(("out",)) '
       'if s.shape != d.shape("self")), status=561103)'),
    of(KL, "listing reduction documents",
       'rules.warn_unless("reduction", 0, 1, 2, 3, meaning="the device scales as for none")',
       'rules.one_of("reduction", 0, 1, 2, 3)'),
    of(KL, "listing invalid",
       "legacy={ASCEND_910: HALF_AND_SINGLE", "legacy={ASCEND_910: FLOATS", soc="Ascend910A"),
    of(KL, "listing products invalid documents", "A2: FLOATS,", "A2: (*FLOATS, DOUBLE),"),
    of("KlDiv", f"{NUMBERS} listing defaults broadcast mixed empty",
       "products=shared.PRODUCTS", "products=dict.fromkeys(shared.PRODUCTS, FLOATS[:2])"),
    of(L1, "listing invalid", 'rules.present(*INPUTS, "grad_input")', "rules.present(*INPUTS)"),
    of(L1, "invalid", "rank_at_most(8,", "rank_at_most(9,"),
    of(L1, "reduction invalid",
       'rules.one_of("reduction", 0, 1, 2)', 'rules.one_of("reduction", 0, 1, 2, 3)'),
    of("KlDivTargetBackward.documented", "invalid", "rules.public_format(*shared.TENSORS)", ""),
    of("MseLossBackward", "empty", 'rules.present(*INPUTS, "out"),',
       'rules.present(*INPUTS, "out"),\n        rules.succeed_if_empty(*INPUTS),'),
    of("NLLLoss", "listing defaults",
       '"target", "weight", "out", "total_weight_out"', '"target", "out", "total_weight_out"'),
    of("SmoothL1Loss", "listing invalid", 'rules.not_negative("beta"),', ""),
    of("Matmul", "reduction", '"cube_math_type", *range(5)', '"cube_math_type", *range(4)'),
    at(".declare.prepare", "Div", "defaults empty rank invalid",
       '        error.details.setdefault("phase", "prepare")',
       '        error.details.setdefault("phase", "prepare")\n'
       '        error.parameters = ("self",)'),
    at(".declare.prepare", "Log", "defaults invalid",
       '        error.details.setdefault("phase", "prepare")',
       '        error.details.setdefault("phase", "prepare")\n'
       "        error.aclnn_status = 161002"),
    of("SiluBackward", "broadcast empty invalid",
       "*(rules.dtype_in(name, *FLOATS) for name in TENSORS),",
       'rules.same_shape("self", "grad_output"),', soc="Ascend950PR_9599"),
    of("Logit", "listing products",
       "ASCEND_950: FLOATS}", "ASCEND_950: FLOATS, ASCEND_310P: FLOATS[:2]}", soc="Ascend310P3"),
    of("Glu", f"{NUMBERS} listing products defaults mixed empty invalid determinism reduction",
       '"aclnnGlu"', '"aclnnGluV1"'),
    of(KL, "products",
       "rules.supported(*TENSORS)", "rules.supported(*TENSORS, besides=(COMPLEX64,))"),
    of("SoftmaxBackward", "empty",
       'rules.except_on((ASCEND_950,), rules.succeed_if_empty("grad_output", "output")),', ""),
    of("Glu", "listing invalid", "*halved(),", "*halved()[:2], halved()[3],"),
    of("BinaryCrossEntropy", "documents", 'rules.same_shape("weight", "self"),', ""),
    of("SoftMarginLossBackward", "broadcast", 'facts.count("common")', 'facts.count("target")'),
    of("ReduceSum", "listing invalid", 'shared.dims_of("dims"),', ""),
)  # fmt: skip
"""Checks, products and what is empty."""

SAYS = (
    at(LOCAL, "Glu", "listing", "tuple(CATALOGUE)",
       'tuple(operator for operator in CATALOGUE if operator.name != "aclnnGlu")'),
    at(".wire.listing", "KlDiv", "listing",
       "in operator.parameters],", "in reversed(operator.parameters)],"),
    at(".wire.listing", "SmoothL1Loss", "listing",
       "info.number = default", "info.number = default / 2"),
    at(".wire.listing", "Matmul", "listing", "prototype=operator.prototype",
       'prototype=operator.prototype.replace("int8_t", "int64_t")'),
    at(".wire.listing", "Tanh", "listing", "available=not unavailable_because", "available=False"),
    at(".wire.listing", "SmoothL1Loss", "listing",
       "dtypes=[d.wire for d in dtypes]", "dtypes=[d.wire for d in dtypes[1:]]"),
    at(".declare.draft", "KlDiv", "defaults", "self.operator.default(parameter)",
       '0 if name == "reduction" else self.operator.default(parameter)'),
    at(".wire.replies", "KlDivTargetBackward.builtin",
       f"{NUMBERS} defaults broadcast mixed empty reduction invalid determinism",
       "variant=call.operator.variant", 'variant="community"'),
    at(".wire.replies", KL, "reduction", "warnings=warnings", "warnings=[]"),
    at(".wire.replies", "Softmax", f"{NUMBERS} mixed empty invalid determinism reduction",
       "warnings=warnings", 'warnings=[*warnings, pb.Warning(parameter="dim", message="slow")]'),
    at(LOCAL, "Cast", "paths", "pb.PlanResponse(reply=pb.Reply.FromString(self._reply(call)))",
       "pb.PlanResponse(reply=pb.Reply.FromString(self._reply(call)), workspace_bytes=512)"),
    at(LOCAL, "Elu", "paths",
       "Timings(check_ns=checked - start, run_ns=time.perf_counter_ns() - checked)",
       "Timings(check_ns=checked - start)"),
    at(LOCAL, "NLLLoss", "listing", "product=self._product.soc", 'product="Ascend950"'),
    at(LOCAL, "KlDivTargetBackward.builtin", "listing defaults",
       "default_variant=self._variant", 'default_variant="builtin"'),
    at(LOCAL, "LeakyRelu", "crowd paths", "outputs = _run(prepared, storages)",
       'outputs = self.__dict__.setdefault("kept", {}).setdefault(call.call, _run(prepared, '
       "storages))"),
)  # fmt: skip
"""What a server says beside its numbers."""

PATHS = (
    at("npucall_server.carriers.multiplex.call", L1,
       "stream chunks pipeline",
       "reply, timings, places = execution.reply()", "reply, timings, places = execution.reply()\n"
       "    places = [memoryview(bytes([e[0] ^ 1]) + bytes(e[1:])) if not isinstance(e, "
       "tuple) and e else e for e in places]"),
    at("npucall_server.carriers.multiplex.call", L1, "pipeline",
       "reply, timings, places = execution.reply()", "reply, timings, places = execution.reply()\n"
       "    STATE['last'], places = (reply, places), STATE['last'][1] if STATE.get('last', "
       "('',))[0] == reply else places"),
    at("npucall_server.carriers.multiplex.stream", L1, "stream chunks pipeline",
       "frames = iter([join_error(",
       "error.aclnn_status = None\n            frames = iter([join_error("),
    at("npucall_server.calls.beginning", L1, "plan",
       "[executor.plan(call, turn) for", "[executor.plan(call, turn) + (not program) * 512 for"),
    at("npucall_server.services.operators", L1, "plan",
       "        plan = self._executions.plan(request, caller, record)\n", "        try:\n"
       "            plan = self._executions.plan(request, caller, record)\n"
       "        except Exception:\n"
       "            from types import SimpleNamespace\n"
       "            plan = SimpleNamespace(steps=[(b'', 0)], timings=b'')\n"),
    written(KL, "execute stream", "a[...] = a + a if call.inputs.keys() - storages.keys() else a"),
    at("npucall_server.services.sessions.entries", L1, "digest handle",
       "        self._has_come = True\n",
       "        self._has_come = True\n"
       "        chunk = chunk._replace(data=STATE.setdefault(len(chunk.data), "
       "bytes(chunk.data)))\n"),
    at("npucall_server.calls.requests", L1, "program", "requests = split_program(message)",
       "first = {}\n"
       "    requests = [r._replace(storage=first.setdefault(r.call, r.storage)) for r "
       "in split_program(message)]"),
    at("npucall_server.calls.beginning", L1, "program-plan",
       "encode_timings(record), peak", "encode_timings(record), 0"),
    at("npucall_server.sessions.digests", L1, "digest",
       "return kept.data", "return STATE.setdefault(len(kept.data), kept.data)"),
    at("npucall_server.scheduling.executor", L1, "timings",
       "record.queue_ns = waited_ns = turn.waited_ns", "waited_ns = turn.waited_ns\n"
       "        record.queue_ns = 10**12"),
    at("npucall_server.calls.open_places", L1, "shared-memory",
       "targets[name] = self._places.regions.view(place, name, person)",
       "targets[name] = self._places.regions.view(place._replace(offset=place.offset + 4), "
       "name, person)"),
    at("npucall_server.calls.open_places", L1, "shared-memory",
       "return self._places.regions.view(place,",
       "return self._places.regions.view(place._replace(offset=64),"),
    at(".compute.pieces", "Mul", "chunks",
       "(count,) for", "(count,) if not piece.start else (max(count - 1, 1),) for"),
)  # fmt: skip
"""What only some paths to a server show: the paths that report it."""

DRAWN = (
    at(".compute.layouts", KL, "fuzz", "        offset = spec.offset * spec.dtype.itemsize\n",
       "        in_order = list(spec.strides) == sorted(spec.strides, reverse=True)\n"
       "        offset = spec.offset * spec.dtype.itemsize * (len(spec.shape) != 3 or "
       "in_order)\n", quick=False),
    of("SmoothL1Loss", "fuzz", "    del reduction\n",
       "    beta = 1.0 if reduction == 2 and 0.35 < beta < 0.95 else beta\n",
       quick=False),
    of(KL, "fuzz", 'rules.same_shape("out", "self")',
       'rules.when(lambda d: getattr(d.tensor("target"), "row_major", True), '
       'rules.same_shape("out", "self"), "")', quick=False),
)  # fmt: skip
"""What only drawn calls show."""
