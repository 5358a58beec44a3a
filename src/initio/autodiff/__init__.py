"""One recorded forward pass, many backward passes.

    record(model, x, direction=v)                              record.py
      │  the model's parts, and copies standing in for them    parts.py
      │  what does not fit in memory waits on disk             spill.py
      ▼
    Recorder: a torch function mode, sees every torch function of the forward pass      recorder.py
      │  a handler for each function it knows                  handlers.py
      │    layers with weights -> Weighted                     weighted.py, on the maps of layers.py
      │    normalisations      -> BatchNormalised, Affine      norms.py, on the sums of channels.py
      │    pooling             -> Pooled, MaxPooled            pools.py
      │  all others are left to autograd; with a direction their tangents come from torch's forward mode
      │  autograd's graph is compared with what was seen       audit.py
      │  runs of cells, modules inside of the model, are noted cells.py
      ▼
    Tape: f, perhaps ḟ, and autograd's graph; every question is one backward pass of it  record.py
         gradient, input_gradient, visit, dual_gradient, visit_dual, watched_gradients, curvature, through

**A backward pass.** The tape sets its `Switch` (switch.py: what the pass is for), calls `torch.autograd.grad`, and sets
it back. The recorded functions read the switch: which parameters are wanted, whether batch statistics are constants,
who wants to see layers. They leave g there in a dual pass, where autograd itself returns Hv.

**Two passes.** The direction v = g takes one pass that gives g and a second one along it. A `Recall` (switch.py) that
both are given holds what the functions of the first computed, and the loss gradients δ that met them; the second sends
back δ̇ alone; places of maxima are recalled, too (`MaxPooled`). Where an operation is neither recorded nor piecewise
linear, the second pass does without. Both passes have `free` roundings: 1x1 kernels are matrix products (layers.py).

**Who holds what.** A tape holds its leaves, its output and hence the graph. The graph's functions hold a `Use`: the
layer's names and map, its motion, and the switch; never the tape nor the recorder. Tangents live in a table beside the
tensors while the pass is recorded, and only those of watched values stay. A cycle through autograd's graph would never
be freed: the collector does not see into it.

**Arithmetic.** Compiled kernels (`fused.py`, `fused.c`) take over for float32 on one thread (`threads.py`): 3x3
convolutions and their gradients by Winograd's tiles, batch norm with all its sums in one call, pooling, the products of
samples' gradients. Each has its plain torch twin beside the call. Their roundings have a name, `fused.ARITHMETIC`, to
be changed with them. Autocast is switched off inside. `passes.py` has the forward passes that need no tape: synflow's,
activation patterns, redrawn networks.

**Any module.** What nobody recognised is slow and right. A parameter that no recorded layer accounts for takes one
backward pass a sample; an operation that tangents are not known to pass, a double backward (`curvature`) of a pass that
was recorded `plain`, which a finite difference confirms; samples that may see each other, two backward passes that tell
(`samples`). A model that nothing of this fits is refused in a sentence.
"""
