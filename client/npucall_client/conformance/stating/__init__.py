"""What statements are made of; and how to state an operator.

From the bottom: ``tables``, ``prototypes``, ``promotion`` and ``broadcasting`` are rules stated a
second time. ``given``, ``reals`` and ``domains`` are a call's arguments as float64, IEEE
arithmetic, and how numbers are drawn. ``parts``, ``setups``, ``kernels`` and ``statement`` are what
a statement consists of. ``elementwise`` and ``rowwise`` make statements from functions of one
element, or of one row. ``rounding`` rounds numbers to a dtype. ``defects`` has rows of error tables
that operators share.

**How to state an operator** (``statements/kl_div_backward.py`` and ``l1_loss_backward.py`` are
examples). Write ``statements/<operator>.py``. Work from the mathematics and from the operator's
page and headers [src:cann-pages], never from ``npucall.operators.<operator>``: an error there must
not be repeated here. A module-level ``Statement``, or a tuple of them (variants), is all that is
needed::

    def scalar(k: Given, g: float, y: float) -> float:     # one element, Python floats
        return g * (1 - y) * y

    def vector(k: Given, g: Any, y: Any) -> Any:           # the same on arrays, written apart
        return g * (y - y**2), np.abs(g * y) * (1 + np.abs(y))  # value, size of the terms

    SIGMOID_BACKWARD = elementwise(
        "aclnnSigmoidBackward",
        prototype="const aclTensor* gradOutput, const aclTensor* output, aclTensor* gradInput",
        takes=on(PRODUCTS, *FRACTIONAL),  # by product; a listing must say the same
        inputs=(In("grad_output", normal()), In("output", probabilities())),
        output=Out("grad_input", shape=lambda k: k.shape(*BOTH), dtype=promotion(*BOTH)),
        scalar=scalar,
        vector=vector,
        space=BOTH,                       # these broadcast with each other; absent: all equal
        kernel=promotion(*BOTH),
        torch=lambda k, torch: torch.ops.aten.sigmoid_backward(k["grad_output"], k["output"]),
        mixed=mixed_floats(*BOTH, output="grad_input"),
        edges=(crossed({"grad_output": (1.0, 0.0, INF, NAN), "output": (0.0, 1.0, 2.0, NAN)}),),
        invalid=(                         # in the order of the checks
            *defects.nulls(*BOTH, "grad_input"),
            *defects.ranks(*BOTH),
            ...
        ),
    )

* What the operator is stands here once more; nothing of it is asked of the server, or taken from
  the declaration. ``prototype`` is the C parameter list: order, kinds and names of parameters
  follow from it (``renamed`` where a name does not). ``takes`` are the dtypes by product
  (``tables`` has those that many share), ``legacy`` the products that documents do not list,
  ``defaults`` what attributes are if they are left out; ``In(..., read=False)`` is an input whose
  values do not matter, ``unwarned`` has the values of an attribute without a warning, ``in_kernel``
  the numbers that are converted to the kernel's dtype. Blocks ``listing``, ``products`` and
  ``defaults`` follow from these. Where another default cannot be seen in usual data,
  ``defaulted=Setup(...)`` has data that show it.
* ``k`` is a ``Given``: ``k["alpha"]`` is an attribute or a float64 tensor (None if absent),
  ``k.shape/count/first(*names)`` speak of what tensors broadcast to, ``k.mean("self")`` is the
  factor of the attribute ``reduction`` (1 is mean), ``k.product`` the short SoC name, ``k.dtypes``
  the dtypes, and ``k.top`` the number beyond which the device's intermediate results overflow.
  Scalar functions use ``reals.exp(x, k.top)``, ``reals.log/divide/sigmoid/capped``, since ``math``
  raises; ``vector`` caps with ``capped(array, k.top)`` of ``elementwise``. Tensors come already
  rounded to the kernel's dtype, except those with dtypes of their own.
* A loss has ``output=Out("out", shape=lambda k: k.reduced(*BOTH), ...)``, which is () where the
  attribute ``reduction`` is not 0, and ``factor=lambda k: k.share(*BOTH)``, what a sum is
  multiplied by: 1 / elements for a mean, so that the mean of nothing is NaN. Its functions answer
  the element; with a ``factor`` nothing is rounded before the sum.
* ``size`` is the sum of the absolute values of the terms; leave it out only if nothing cancels.
* ``kernel`` is what inputs are converted to, and results rounded to before any sum:
  ``always(FLOAT)`` (the default), ``float16_if_all``, ``promotion``, ``dtype_of``. ``stepwise``
  says for which kernel dtypes every step rounds (community kernels). For DOUBLE add it to
  ``dtypes`` and use ``promotion``.
* Along a dimension: ``rowwise`` (``row`` takes and answers lists, ``vector`` has the row as last
  axis). Anything else: a ``Statement(operator, inputs, outputs, loops, arrays, ...)`` of your own:
  ``loops(k)`` answers an array or nested lists, ``arrays(k)`` a ``Terms``; with several outputs
  both answer a dict by output name.
* Shapes that are not all equal: ``shapes=lambda base, attributes: {"self": base, "target":
  base[:1], "weight": base[1:]}``, with ``base_shapes``, ``rank_shapes``, ``empty_shapes``,
  ``layout_shape`` and ``sized`` (element count -> base shape) of the right rank, and ``broadcast``
  as explicit ``Setup``s.
* ``In(..., dtypes=(INT64, INT32))`` for indices (``domains.indices``) and what else has dtypes of
  its own; ``optional=True`` for weights that may be absent, with ``refused=True`` for what must
  be. A domain sees what was drawn before it: ``domains.follows(lambda d: np.tanh(d["x"]))``,
  ``d.shapes["self"]``, ``d["ignore_index"]``.
* ``cost`` is what computing in float32 may cost, in units of 2^-24 of the terms' size: 32 unless
  said, 0 where the formula is one operation. ``halfway`` has calls whose every step is exact and
  whose results are ties. Gradients of losses are ``upstream("self", "target")``, which are as large
  as the count that a mean divides by; ``faint`` names outputs that are zero by right.
* ``attributes``: values to cross; a callable value is called with the base shape. An aclScalar is
  a Python number or a ``Scalar(INT32, 2)``. Keep the product of all under about 16. What is not
  listed is not sent, and has its default.
* ``Setup`` is what is special about a case: shapes, values, attributes, dtypes (an output's too,
  which is then given), absent inputs, products; or that outputs are ``filled``, since nothing is
  computed. ``broadcast``, ``mixed``, ``empty``, ``edges`` and
  ``reductions`` are tuples of setups; grid, layout, rank, determinism and size come by themselves.
* ``invalid`` has every row of the error table in the order of its checks (``Invalid``, and the
  helpers in ``defects``). The suite also puts a null pointer beside each row, which must win, and
  pairs neighbouring rows, of which the first must win; ``alone=True`` keeps a row out of pairs.
  The valid call that rows are put in has tensors of the first of ``dtypes`` and of
  ``layout_shape``, outputs and optional inputs given, and the first values of ``attributes``;
  ``base=Setup(...)`` changes it for a row.
* ``empty_before`` names the first row that is checked behind what ends the checks of an empty call;
  every row before it is also tried on an empty tensor, but those that begin with one of
  ``empty_spares``.
* ``contradictions``: where sources contradict each other, a call and what each source expects.

``tests/conformance_suite/test_statements.py`` holds every statement to the rules; the quickest
check is ``npucall conform local: --operator SigmoidBackward``.
"""
