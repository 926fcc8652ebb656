"""The parts of statements; and how to state an operator.

From the bottom: ``tables`` and ``promotion`` state rules a second time. ``arguments`` has a call's
arguments as float64, ``reals`` has IEEE arithmetic, ``domains`` draws numbers, ``rounding`` rounds
them to a dtype. A statement consists of ``parts``, which ``statement`` puts
together. ``elementwise`` and ``rowwise`` make statements from functions of one element, or of
one row. ``defects`` has rows of error tables that several operators share.

**How to state an operator** (``statements/kl_div_backward.py`` and ``l1_loss_backward.py`` are
examples). Write ``statements/<operator>.py``. Work from the mathematics and from the operator's
page and headers [src:cann-pages], never from ``npucall.operators.<operator>``: an error there must
not be repeated here. The file needs only a module-level ``Statement``, or a tuple of them for the
variants of an operator::

    def scalar(k: Arguments, g: float, y: float) -> float:     # one element, Python floats
        return g * (1 - y) * y

    def vector(k: Arguments, g: Any, y: Any) -> Any:           # the same on arrays, another way
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
        npu=aten("sigmoid_backward", "grad_output", "output"),
        mixed=mixed_floats(*BOTH, output="grad_input"),
        edges=(crossed({"grad_output": (1.0, 0.0, INF, NAN), "output": (0.0, 1.0, 2.0, NAN)}),),
        invalid=(                         # in the order of the checks
            *defects.nulls(*BOTH, "grad_input"),
            *defects.ranks(*BOTH),
            ...
        ),
    )

* The statement describes the operator a second time. It takes nothing from the server or from the
  declaration. ``prototype`` is the C parameter list. The order, kinds and names of parameters
  follow from it; ``renamed`` has the names that do not. ``takes`` has the dtypes by product;
  ``tables`` has tables that many operators share. ``legacy`` has the products that documents do not
  list. ``defaults`` has the values of attributes that a call leaves out. ``In(..., read=False)`` is
  an input whose values do not matter. ``unwarned`` has the values of an attribute that give no
  warning. ``in_kernel`` names the numbers that are converted to the kernel's dtype. The cases of
  the blocks ``listing``, ``products`` and ``defaults`` follow from these. If usual data do not show
  a wrong default, ``defaulted=Setup(...)`` has data that do.
* ``k`` is an ``Arguments``. ``k["alpha"]`` is an attribute or a float64 tensor (None if absent).
  ``k.shape/count/first(*names)`` tell the shape that tensors broadcast to, its element count and
  its first extent. ``k.mean("self")`` is the factor of the attribute ``reduction`` (1 is mean).
  ``k.product`` is the short SoC name, ``k.dtypes`` has the dtypes, and beyond the number ``k.top``
  the device's intermediate results overflow. Scalar functions use ``reals.exp(x, k.top)`` and
  ``reals.log/divide/sigmoid/capped``, since ``math`` raises. ``vector`` caps with
  ``capped(array, k.top)`` of ``elementwise``. Tensors are already rounded to the kernel's dtype,
  except those with dtypes of their own.
* A loss has ``output=Out("out", shape=lambda k: k.reduced(*BOTH), ...)``: the shape is () if the
  attribute ``reduction`` is not 0. It also has ``factor=lambda k: k.share(*BOTH)``, by which a sum
  is multiplied: 1 / elements for a mean, so that the mean of no elements is NaN. Its functions
  return the element. With a ``factor``, nothing is rounded before the sum.
* ``size`` is the sum of the absolute values of the terms. Leave it out only if no terms cancel.
* ``kernel`` is the dtype to which inputs are converted, and results are rounded before any sum:
  FLOAT by default, ``float16_if_all``, ``promotion``, ``dtype_of``. ``stepwise`` says for which
  kernel dtypes every step rounds (community kernels). If the operator takes DOUBLE, add it to
  ``dtypes`` and use ``promotion``.
* ``npu`` says how torch_npu calls the kernel (``npu``), or in words why it cannot.
* For an operator along a dimension use ``rowwise``: ``row`` takes and returns lists, ``vector`` has
  the row as the last axis. For any other operator write a
  ``Statement(operator, inputs, outputs, loops, arrays, ...)``: ``loops(k)`` returns an array or
  nested lists, ``arrays(k)`` a ``Terms``. With several outputs both return a dict by output name.
* If shapes are not all equal, give ``shapes=lambda base, attributes: {"self": base, "target":
  base[:1], "weight": base[1:]}``. Then give ``base_shapes``, ``rank_shapes``, ``empty_shapes``,
  ``layout_shape`` and ``sized`` (element count -> base shape) of the right rank, and ``broadcast``
  as explicit ``Setup``s.
* The tensors of a list are inputs, or outputs, of their own: ``In("tensors[0]", ...)``. Those that
  are ``optional`` make lists of other lengths; where none is given, the list is empty. Setups and
  rows name them one by one, and ``k["tensors"]`` has those that are given.
* ``In(..., dtypes=(INT64, INT32))`` is for indices and other inputs with dtypes of their own.
  ``optional=True`` is for weights that may be absent; add ``refused=True`` for inputs that must be
  absent. A domain sees the values that were drawn before it:
  ``domains.follows(lambda d: np.tanh(d["x"]))``, ``d.shapes["self"]``, ``d["ignore_index"]``.
* ``cost`` is the error that computing in float32 may cause, in units of 2^-24 of the terms' size.
  It is 32 by default; give 0 if the formula is one operation. ``halfway`` has calls in which every
  step is exact and the results are ties. Gradients of losses are ``upstream("self", "target")``:
  they are as large as the count that a mean divides by. ``faint`` names outputs that are rightly
  zero.
* ``attributes`` has values to cross. A callable value is called with the base shape. An aclScalar
  is a Python number or a ``Scalar(INT32, 2)``. Keep the product of all under about 16. A call does
  not send attributes that are not listed; they have their defaults.
* ``Setup`` says how a case differs from the usual one: shapes, values, attributes, dtypes (if it
  has an output's dtype, the call gives that output), absent inputs, products. It may also say that
  outputs are ``filled``, since nothing is computed. ``broadcast``, ``mixed``, ``empty``, ``edges``
  and ``reductions`` are tuples of setups. The cases of grid, layout, rank, determinism and size are
  made without setups.
* ``invalid`` has every row of the error table in the order of its checks [src:check-order]
  (``Invalid``, and the helpers in ``defects``). The suite also combines each row with a null
  pointer, which must be found first. It also combines neighbouring rows, of which the first must be
  found; ``alone=True`` keeps a row out of pairs. Each row changes a valid call. That call has
  tensors of the first of
  ``dtypes`` and of ``layout_shape``, all outputs and optional inputs, and the first values of
  ``attributes``. ``base=Setup(...)`` changes that call for a row.
* For an empty call, checks end early. ``empty_before`` names the first row that is checked after
  that point. The suite tries every row before it on an empty tensor too, except those whose names
  begin with one of ``empty_spares``.
* ``written`` has calls with their results written out (``written``): complex numbers, integers that
  wrap around, digits that float64 does not have.
* ``contradictions``: if sources contradict each other, a call and what each source expects of it.

``tests/operators`` judges every operator by its statement, and the statement by the operator; the
quickest check is ``npucall conform local: --operator SigmoidBackward``.
"""
