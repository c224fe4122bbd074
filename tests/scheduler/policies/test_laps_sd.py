"""The default policy: seeded queues, preemption with manners, and fairness that is proven."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laps_sd.scheduler import CostModel, Prediction, Refinement, Settings, SurvivalCurve, make_policy, new_request
from laps_sd.scheduler.policies.laps_sd import LapsSd

with_fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


def arrived(policy, number, predicted=None, *, accept_length=2.0, prompt_tokens=10, sigma=0.3, priority=0):
    prediction = None
    if predicted is not None:
        prediction = Prediction(SurvivalCurve.lognormal(predicted, sigma), accept_length, 16.0)
    state = new_request(number, prompt_tokens, settings=policy.settings, prediction=prediction, priority=priority)
    policy.on_arrival(state)
    return state


def limited(policy, number, limit, predicted=20, **more):
    """A request that nothing but its limit ends, whatever was predicted of it."""
    prediction = Prediction(SurvivalCurve.lognormal(predicted, 0.3), 2.0, 16.0)
    state = new_request(
        number, 10, settings=policy.settings, prediction=prediction, max_new_tokens=limit, runs_to_limit=True, **more
    )
    policy.on_arrival(state)
    return state


def run(policy, state, steps, tokens=2):
    for _ in range(steps):
        policy.on_step(state, tokens - 1, 5, tokens)


# --- the place of a request -----------------------------------------------------------------------------------


@given(st.floats(5, 3000), st.floats(5, 3000))
def test_the_seed_puts_a_request_into_the_queue_of_its_perceived_service(a, b):
    policy = LapsSd()
    one, other = arrived(policy, 0, a), arrived(policy, 1, b)
    if abs(a - b) > 0.05 * max(a, b) + 2:
        assert (one.key < other.key) == (a < b)
    assert (one.queue <= other.queue) == (one.perceived_service <= other.perceived_service or one.queue == other.queue)


def test_drafts_that_are_accepted_make_a_request_lighter():
    policy = LapsSd()
    assert arrived(policy, 0, 200, accept_length=4.0).key < arrived(policy, 1, 200, accept_length=1.5).key


def test_verify_steps_that_accept_more_than_predicted_lift_a_request():
    policy = LapsSd(Settings(index="remaining"))
    good, bad = arrived(policy, 0, 800), arrived(policy, 1, 800)
    policy.on_admit(good)
    policy.on_admit(bad)
    for _ in range(32):
        policy.on_step(good, 5, 5, 2)  # tokens alike: only the acceptance differs
        policy.on_step(bad, 0, 5, 2)
    assert good.perceived_service < bad.perceived_service
    assert good.queue < bad.queue


def test_a_long_prompt_is_part_of_the_perceived_service():
    policy = LapsSd(cost=CostModel(step_s=0.02, prefill_s_per_token=0.0001))
    short, long = arrived(policy, 0, 100), arrived(policy, 1, 100, prompt_tokens=100_000)
    assert long.perceived_service == pytest.approx(short.perceived_service + 99_990 * 0.005)
    assert short.key < long.key


@given(st.floats(0.1, 1e7), st.floats(0.1, 1e7))
def test_queues_are_ordered_and_their_number_is_bounded(a, b):
    policy = LapsSd()
    assert (policy.queues.of(min(a, b))) <= policy.queues.of(max(a, b)) < policy.settings.levels
    assert policy.queues.of(policy.settings.first_threshold) == 0


def test_a_request_that_runs_to_its_limit_is_as_long_as_its_limit():
    policy = LapsSd()
    certain = limited(policy, 0, 400)
    assert certain.perceived_service == pytest.approx(400 * certain.posterior.steps_per_token(), rel=0.01)
    assert policy.reserve_tokens(certain) == 400
    assert arrived(policy, 1, 300).key < certain.key < arrived(policy, 2, 600).key
    policy.on_admit(certain)
    run(policy, certain, 100)
    policy.place(certain)
    assert certain.perceived_service == pytest.approx(200 * certain.posterior.steps_per_token(), rel=0.01)
    assert policy.reserve_tokens(certain) == 200


def test_a_request_that_runs_to_its_limit_does_not_judge_our_predictions():
    policy = LapsSd()
    for i in range(100):
        state = limited(policy, i, 100 + i, predicted=200 - i)
        policy.on_admit(state)
        run(policy, state, (100 + i) // 2)
        policy.on_abort(state)
    assert policy.trust == policy.settings.most_trust


def test_answers_cut_by_their_limit_judge_our_predictions():
    """Whoever was called short ran into the limit, in steps of two tokens: the order of the predictions was wrong."""
    policy = LapsSd()
    for i in range(200):
        prediction = Prediction(SurvivalCurve.lognormal(20 + i if i % 2 else 8, 0.3), 2.0, 16.0)
        state = new_request(i, 10, settings=policy.settings, prediction=prediction, max_new_tokens=400)
        policy.on_arrival(state)
        policy.on_admit(state)
        run(policy, state, (20 + i if i % 2 else 400) // 2)
        if state.cut:
            policy.on_abort(state)
        else:
            policy.on_finish(state)
    assert policy.trust < 0.5


def test_a_limit_must_be_known_to_be_run_to():
    with pytest.raises(ValueError, match="needs max_new_tokens"):
        new_request(0, 10, runs_to_limit=True)


# --- preemption -----------------------------------------------------------------------------------------------


def test_a_request_of_a_higher_queue_takes_the_slot_of_one_of_a_lower():
    policy = LapsSd()
    long, short = arrived(policy, 0, 2000), arrived(policy, 1, 20)
    policy.on_admit(long)
    assert policy.victim(short, [long]) is long


@pytest.mark.parametrize("change", ["resumable", "ending"])
@pytest.mark.parametrize("priority", [0, 50])
def test_who_cannot_go_on_where_it_was_or_ends_anyway_keeps_its_slot(change, priority):
    policy = LapsSd()
    long, other, short = arrived(policy, 0, 2000), arrived(policy, 1, 1000), arrived(policy, 2, 20, priority=priority)
    setattr(long, change, change == "ending")
    policy.on_admit(long)
    assert policy.victim(short, [long]) is None
    policy.on_admit(other)
    assert policy.victim(short, [long, other]) is other, "and does not hide who can"


def test_who_is_being_aborted_waits_for_nobody_and_takes_no_slot():
    policy = LapsSd()
    long, urgent, ending = arrived(policy, 0, 2000), arrived(policy, 1, 5, priority=100), arrived(policy, 2, 3000)
    ending.ending = True
    policy.place(ending)
    waiting = [urgent, ending]
    policy.rank(waiting)
    assert waiting == [ending, urgent]
    policy.on_admit(long)
    assert policy.victim(ending, [long]) is None


def test_inside_a_queue_nobody_is_preempted():
    policy = LapsSd()
    running, waiting = arrived(policy, 0, 103), arrived(policy, 1, 100)
    policy.on_admit(running)
    assert policy.victim(waiting, [running]) is None


def test_there_is_no_ping_pong():
    """Who has just given way does not get the slot back while the other runs (vllm 40004, 54530)."""
    policy = LapsSd()
    long, short = arrived(policy, 0, 400), arrived(policy, 1, 200)
    policy.on_admit(long)
    assert policy.victim(short, [long]) is long
    policy.on_preempt(long, 10)
    policy.on_admit(short)
    for _ in range(60):
        run(policy, short, 1)
        assert policy.victim(long, [short]) is None


def test_the_recomputation_is_on_the_candidate_s_bill():
    dear = CostModel(step_s=0.02, prefill_s_per_token=0.001)
    for cost, gives_way in ((CostModel.unit(), True), (dear, False)):
        policy = LapsSd(cost=cost)
        running = arrived(policy, 0, 300, prompt_tokens=2000)
        candidate = arrived(policy, 1, 100)
        policy.on_admit(running)
        run(policy, running, 8)
        assert (policy.victim(candidate, [running]) is running) == gives_way


def test_a_prefill_that_costs_whatever_its_length_is_on_the_bill_too():
    for fixed_steps, gives_way in ((0.1, True), (100.0, False)):
        policy = LapsSd(cost=CostModel(step_s=0.02, prefill_s=0.02 * fixed_steps))
        long = arrived(policy, 0, 400)
        policy.on_admit(long)
        short = arrived(policy, 1, 20)
        assert (policy.victim(short, [long]) is long) == gives_way


@pytest.mark.parametrize(("slots", "gives_way"), [(1, True), (64, False)])
def test_where_a_slot_is_free_soon_anyway_nobody_pays_for_one(slots, gives_way):
    """However long the victim has still to run: who waits gains no more than the time to the next release."""
    policy = LapsSd(cost=CostModel(step_s=0.02, prefill_s=0.02), slots=slots)
    running = [arrived(policy, i, 100_000) for i in range(slots)]
    for state in running:
        policy.on_admit(state)
    short = arrived(policy, slots, 10)
    assert (policy.victim(short, running) in running) == gives_way


def test_dear_victims_do_not_hide_one_that_is_worth_it():
    policy = LapsSd(cost=CostModel(step_s=0.02, prefill_s_per_token=0.0001), slots=12)
    heavy = [arrived(policy, i, 100_000, prompt_tokens=20_000) for i in range(11)]
    light = arrived(policy, 11, 8000, prompt_tokens=10)
    running = [*heavy, light]
    for state in running:
        policy.on_admit(state)
    waiting = [arrived(policy, 12 + i, 10) for i in range(4)]
    assert policy.victim(waiting[0], running) is light


def test_the_victim_is_the_one_whose_preemption_gains_most():
    policy = LapsSd(cost=CostModel(step_s=0.02, prefill_s_per_token=0.0001))
    heavy = arrived(policy, 0, 2000, prompt_tokens=60_000)  # a little longer, but dear to compute again
    light = arrived(policy, 1, 1900, prompt_tokens=100)
    candidate = arrived(policy, 2, 10)
    for s in (heavy, light):
        policy.on_admit(s)
    assert policy.victim(candidate, [heavy, light]) is light


def test_a_request_near_its_end_keeps_its_slot():
    policy = LapsSd(Settings(protect_steps=8))
    running, candidate = arrived(policy, 0, 200, sigma=0.02), arrived(policy, 1, 2)
    policy.on_admit(running)
    assert policy.victim(candidate, [running]) is running
    run(policy, running, 96)
    assert policy.victim(candidate, [running]) is None


def test_preemption_can_be_switched_off():
    policy = LapsSd(Settings(preemption=False))
    long, short = arrived(policy, 0, 2000), arrived(policy, 1, 20)
    policy.on_admit(long)
    assert not policy.preemptive
    assert policy.victim(short, [long]) is None


def test_a_client_s_high_priority_takes_the_slot_of_a_low_one_and_never_the_other_way_round():
    policy = LapsSd()
    low, high = arrived(policy, 0, 20), arrived(policy, 1, 2000, priority=1)
    policy.on_admit(low)
    assert policy.victim(high, [low]) is low
    policy.on_preempt(low)
    policy.on_admit(high)
    assert policy.victim(low, [high]) is None


jobs = st.lists(st.tuples(st.integers(0, 150), st.integers(1, 60), st.floats(1, 100)), min_size=2, max_size=30)


@given(work=jobs, slots=st.integers(1, 3), most=st.integers(0, 3))
@with_fixtures
def test_preemptions_of_one_request_are_bounded(work, slots, most, tiny_engine, job):
    policy = LapsSd(Settings(max_preemptions=most, margin=1.0, factor=1.01, levels=2000))
    engine = tiny_engine(policy, slots)
    engine.run([job(*w) for w in work])
    assert all(s.preemptions <= most for s in engine.states)


# --- fairness -------------------------------------------------------------------------------------------------


def test_a_prediction_that_is_replaced_in_flight_moves_the_request_at_once():
    policy = LapsSd(slots=2)
    waits, runs, other, late = (arrived(policy, i, n) for i, n in enumerate((500, 500, 600, 50)))
    for state in (runs, other):
        policy.on_admit(state)
    assert policy.victim(late, [runs, other]) is other
    queue = [waits, late]
    policy.rank(queue)
    assert queue == [late, waits]
    for state, tokens in ((waits, 10), (runs, 3000)):
        policy.on_refine(state, Refinement(1, SurvivalCurve.lognormal(tokens, 0.3)))
    policy.rank(queue)
    assert queue == [waits, late]
    assert policy.victim(late, [runs, other]) is runs


def test_trust_judges_the_prediction_of_the_arrival_not_the_refined_one():
    trusts = []
    for refine in (False, True):
        policy = LapsSd(Settings(trust_prior=1, review_every=8))
        for i in range(64):
            state = arrived(policy, i, 20 + 37 * i % 400, sigma=0.3)
            policy.on_admit(state)
            run(policy, state, 1 + 53 * i % 150)
            if refine:
                policy.on_refine(state, Refinement(1, SurvivalCurve.lognormal(max(state.generated, 1), 0.1)))
            policy.on_finish(state)
        trusts.append(policy.trust)
    assert trusts[0] == trusts[1] < 0.9


@given(work=jobs, slots=st.integers(1, 3), patience=st.floats(0, 3))
@with_fixtures
def test_whoever_is_overdue_is_passed_by_nobody_that_came_after(work, slots, patience, tiny_engine, job):
    """The starvation bound, first half: once due, only those that were due earlier and waited already go first."""
    policy = LapsSd(Settings(patience=patience, patience_floor=1.0))
    engine = tiny_engine(policy, slots)
    engine.run([job(*w) for w in work])
    for admission in engine.admissions:
        for deadline in admission.overdue:
            assert admission.deadline <= deadline
            assert admission.waiting_since <= deadline


@given(work=jobs, slots=st.integers(1, 3), patience=st.floats(0, 3))
@with_fixtures
def test_waiting_is_bounded_by_patience_and_by_the_work_that_was_there_already(work, slots, patience, tiny_engine, job):
    """The starvation bound, second half, in rounds: nothing that arrives after the deadline adds to the wait."""
    policy = LapsSd(Settings(patience=patience, patience_floor=1.0))
    jobs = sorted((job(*w) for w in work), key=lambda j: j.arrives)
    engine = tiny_engine(policy, slots)
    engine.run(jobs)
    for admission in engine.admissions:
        ahead = sum(j.steps for j in jobs if j.arrives <= admission.deadline)
        assert admission.round <= admission.deadline + ahead


def test_a_long_request_is_served_although_short_ones_keep_coming(tiny_engine, job):
    stream = [job(0, 200, 200.0), *(job(i, 10, 10.0) for i in range(0, 4000, 10))]
    impatient = tiny_engine(LapsSd(Settings(patience=5.0)), 1).run(stream)
    assert impatient[0] < 5 * 250 + 300
    assert tiny_engine(LapsSd(Settings(patience=1e9)), 1).run(stream)[0] > 4000


def test_patience_counts_rounds_relative_to_the_expected_service():
    policy = LapsSd(Settings(patience=10, patience_floor=1))
    short, long = arrived(policy, 0, 20), arrived(policy, 1, 2000)
    policy.start_round(int(10 * short.perceived_service) + 2)
    assert short.overdue
    assert not long.overdue
    policy.start_round(int(10 * long.perceived_service))
    assert long.overdue
    queue = [long, short]
    policy.rank(queue)
    assert queue == [short, long]


@given(
    events=st.lists(st.sampled_from(("wait", "wait", "wait long", "step", "swap")), max_size=60),
    patience=st.floats(0, 4),
    rng=st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_all_waits_of_a_request_together_use_up_one_patience(events, patience, rng):
    """However often it is preempted: until it is due a request waits the promised rounds in all, not every time."""
    policy = LapsSd(Settings(patience=patience, patience_floor=1.0))
    states = [arrived(policy, i, rng.choice((None, 3, 30, 90))) for i in range(4)]
    promised = [int(patience * max(state.perceived_service, 1.0)) for state in states]
    waited = [0] * len(states)
    for event in events:
        for _ in range({"wait": 1, "wait long": 40}.get(event, 0)):
            policy.start_round()
            for state in states:
                waited[state.arrival] += not (state.running or state.overdue)
        for state in states:
            if event == "step" and state.running:
                run(policy, state, rng.randrange(20))
            elif event == "swap" and rng.random() < 0.5:
                (policy.on_preempt if state.running else policy.on_admit)(state)
        assert all(w <= p for w, p in zip(waited, promised, strict=True))


def test_whoever_was_due_and_is_preempted_anyway_is_due_since_then():
    """An engine that runs out of KV memory takes slots without asking."""
    policy = LapsSd(Settings(patience=1))
    first, second = arrived(policy, 0, 100), arrived(policy, 1, 3000)
    policy.start_round(100_000)
    before = first.deadline
    policy.on_admit(first)
    policy.start_round(500)
    policy.on_preempt(first)
    assert (first.overdue, first.deadline) == (True, before)
    queue = [second, first]
    policy.rank(queue)
    assert queue == [first, second]


def test_many_that_become_due_at_once_come_forward_a_few_a_round_the_earliest_first():
    policy = LapsSd(Settings(patience=1, places_per_round=8), slots=4)
    states = [arrived(policy, i, 20 + i) for i in range(100)]
    policy.start_round(10_000)
    assert [s.arrival for s in states if s.overdue] == list(range(8))
    for _ in range(12):
        policy.start_round()
    assert all(s.overdue for s in states)


def starving(patience_before_priority, tiny_engine, job):
    """When a request without priority ends under an endless stream of others that all claim one."""
    policy = LapsSd(Settings(patience=4, patience_floor=1.0, patience_before_priority=patience_before_priority))
    engine = tiny_engine(policy, 1)
    return engine.run([job(0, 10, 10.0, 0), *(job(i, 4, 4.0, 1) for i in range(0, 3000, 4))])[0]


def test_priority_starves_others_unless_the_operator_bounds_it(tiny_engine, job):
    assert starving(False, tiny_engine, job) > 3000
    assert starving(True, tiny_engine, job) < 130, "patience of 4 × 23 expected rounds, whoever runs, and its own 10"


with_priority = st.lists(
    st.tuples(st.integers(0, 150), st.integers(1, 60), st.floats(1, 100), st.integers(0, 2)), min_size=2, max_size=30
)


@given(work=with_priority, slots=st.integers(1, 3), patience=st.floats(0, 3))
@with_fixtures
def test_the_bound_on_waiting_holds_across_priorities_where_it_is_so_set(work, slots, patience, tiny_engine, job):
    policy = LapsSd(Settings(patience=patience, patience_floor=1.0, patience_before_priority=True))
    jobs = sorted((job(*w) for w in work), key=lambda j: j.arrives)
    engine = tiny_engine(policy, slots)
    engine.run(jobs)
    for admission in engine.admissions:
        ahead = sum(j.steps for j in jobs if j.arrives <= admission.deadline)
        assert admission.round <= admission.deadline + ahead


def test_an_overdue_request_keeps_its_slot():
    policy = LapsSd(Settings(patience=1))
    long, short = arrived(policy, 0, 2000), arrived(policy, 1, 20)
    policy.start_round(100_000)
    policy.on_admit(long)
    assert policy.victim(short, [long]) is None


def test_lighter_requests_pass_one_that_does_not_fit_until_it_is_overdue():
    policy = LapsSd(Settings(patience=1))
    state = arrived(policy, 0, 2000)
    assert policy.may_pass(state)
    policy.start_round(100_000)
    assert not policy.may_pass(state)


def test_the_key_of_a_waiting_request_does_not_change_while_nothing_happens_to_it():
    policy = LapsSd()
    state = arrived(policy, 0, 100)
    before = state.key
    for _ in range(50):
        policy.start_round()
    assert state.key is before


# --- without predictions, and with bad ones -------------------------------------------------------------------


def test_without_predictions_and_evidence_it_is_first_come_first_served(tiny_engine, job):
    finished = tiny_engine(LapsSd(), 1).run([job(i, 20 - i) for i in range(12)])
    assert list(finished) == list(range(12))


def test_without_predictions_it_learns_that_who_has_run_long_runs_long(tiny_engine, job):
    """Most requests are short, a few very long: then the least attained goes first."""
    policy = LapsSd()
    engine = tiny_engine(policy, 1)
    engine.run([job(20 * i, 400 if i % 16 == 9 else 4) for i in range(160)])
    old, new = arrived(policy, 1000), arrived(policy, 1001)
    policy.on_admit(old)
    run(policy, old, 40)
    assert policy.victim(new, [old]) is old


def test_aborted_requests_do_not_teach_that_requests_are_short():
    policy = LapsSd()
    for i in range(200):
        state = arrived(policy, i)
        policy.on_admit(state)
        run(policy, state, 8)
        policy.on_abort(state)
    assert policy.population.lengths.mean() >= LapsSd().population.lengths.mean() * 0.99


@pytest.mark.parametrize(("corrupt", "trusted"), [(False, True), (True, False)])
def test_predictions_that_prove_wrong_lose_their_weight(corrupt, trusted, tiny_engine, job):
    policy = LapsSd()
    lengths = [5 + 7 * (i * 37 % 41) for i in range(160)]
    predicted = [300.0 - n for n in lengths] if corrupt else [float(n) for n in lengths]
    tiny_engine(policy, 2).run([job(60 * i, n, p) for i, (n, p) in enumerate(zip(lengths, predicted, strict=True))])
    assert policy.population.trust == (policy.settings.most_trust if trusted else 0.0)


# --- memory, and the paper's own configuration ----------------------------------------------------------------


def test_admission_reserves_what_the_request_will_probably_need():
    policy = LapsSd()
    state = arrived(policy, 0, 100)
    assert 100 < policy.reserve_tokens(state) < 200
    state.max_new_tokens = 50
    assert policy.reserve_tokens(state) == 50
    assert policy.reserve_tokens(arrived(policy, 1)) < 4096


def test_in_the_paper_s_configuration_all_start_in_the_highest_queue():
    policy = make_policy("laps-sd:paper")
    assert {arrived(policy, i, p).queue for i, p in enumerate((10, 500, 9000))} == {0}


def test_in_the_paper_s_configuration_attained_service_sinks_a_request_and_stability_orders_a_queue():
    policy = make_policy("laps-sd:paper")
    short, long, fresh = arrived(policy, 0, 100), arrived(policy, 1, 400), arrived(policy, 2, 50)
    for s in (long, short):
        policy.on_admit(s)
        run(policy, s, 40)
        policy.on_preempt(s)
    assert policy.perceptible(short)
    assert not policy.perceptible(fresh)
    assert short.queue == long.queue > fresh.queue == 0
    queue = [long, short, fresh]
    policy.rank(queue)
    assert queue == [fresh, short, long]
    policy.on_admit(long)
    assert policy.victim(fresh, [long]) is long
