<?php

// Sends notifications through Laravel's own channel manager, one twice with one id as a queue does that tries again:
// php laravel.php, in a project that has our client, with Laravel as Debian packages it in the include path.

declare(strict_types=1);

use Illuminate\Bus\Dispatcher as Bus;
use Illuminate\Config\Repository;
use Illuminate\Container\Container;
use Illuminate\Contracts\Bus\Dispatcher as BusContract;
use Illuminate\Contracts\Events\Dispatcher as EventsContract;
use Illuminate\Events\Dispatcher as Events;
use Illuminate\Notifications\ChannelManager;
use Illuminate\Notifications\Notification;
use Tumira\Laravel\TumiraMessage;
use Tumira\Laravel\TumiraServiceProvider;

// What is deprecated in PHP since that version of Laravel was made.
error_reporting(E_ALL & ~E_DEPRECATED);

require 'vendor/autoload.php';
foreach (['Notifications', 'Config', 'Events'] as $part) {
    require "Illuminate/$part/autoload.php";
}

final class OrderReady extends Notification
{
    public function __construct(private readonly bool $labelled)
    {
    }

    public function via(object $notifiable): array
    {
        return ['tumira'];
    }

    public function toTumira(object $notifiable): string|TumiraMessage
    {
        return $this->labelled ? new TumiraMessage('Your order 1042 is ready.', 'order-1042') : 'Your order 1043 is ready.';
    }
}

final class Customer
{
    public function __construct(private readonly ?string $phone)
    {
    }

    public function getKey(): int
    {
        return 1;
    }

    public function routeNotificationFor(string $channel, Notification $notification): ?string
    {
        return $channel === 'tumira' ? $this->phone : null;
    }
}

$app = new Container();
$app->instance('config', new Repository(['services' => ['tumira' => ['country' => 'ZW']]]));
$app->instance(BusContract::class, new Bus($app));
$app->instance(EventsContract::class, new Events($app));
$app->singleton(ChannelManager::class, fn ($app) => new ChannelManager($app));
$provider = new TumiraServiceProvider($app);
$provider->register();
$provider->boot();

$channels = $app->make(ChannelManager::class);
$notification = new OrderReady(true);
$notification->id = 'b5b2a0d4-7d0c-4f5e-9f57-1a2b3c4d5e6f';
foreach ([1, 2] as $try) {
    $channels->sendNow(new Customer('077 120 0001'), clone $notification);
}
$channels->sendNow([new Customer('077 120 0002'), new Customer('077 120 0003'), new Customer(null)], new OrderReady(false));
echo "sent\n";
